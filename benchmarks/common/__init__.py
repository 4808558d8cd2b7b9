"""What several rooms share: data sets, shards, networks, timing, how tables and pictures look. No commands."""
