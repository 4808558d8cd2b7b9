"""What is needed where several processes train one run together."""
