"""A learner's report on a release or a model: who took part, what was asked, what it reveals, how good the model is."""
