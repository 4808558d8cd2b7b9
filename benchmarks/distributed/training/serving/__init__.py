"""Parameter servers: one takes each gradient as it comes, one waits for most workers, one averages what they did."""
