"""What a party was asked, what became of it, and what people decided about it."""
