"""Methods that fit models again: without a feature, on folds, on permuted labels; and forests by their own samples."""
