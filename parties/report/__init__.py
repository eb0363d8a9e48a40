"""A party's report on a period: who asked, what left, what it cost, what remains, for the people who sign for it."""
