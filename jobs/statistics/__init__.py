"""What answers and judgements come to: means with intervals, comparisons, costs, honesty."""
