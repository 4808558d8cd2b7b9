"""What the rooms share: data sets, shards, networks, timing, drawing."""
