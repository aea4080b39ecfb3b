"""A trained model as an artefact: what it takes and returns travels with it, so it works without its run."""
