"""The one loop: stores of rows, blocks, the model's answers, sums."""
