"""What is measured in a federation: accuracy, forgetting, ranks, personalisation, continual learning."""
