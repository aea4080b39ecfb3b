"""Looking up what there is to choose from: kinds of parts, parts, their options, fields of an experiment."""
