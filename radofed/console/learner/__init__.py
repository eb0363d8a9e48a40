"""The console of a learner: plan, ask, follow, and use what was released."""
