"""Accuracy against visits: regular training of every length beside pruned training of every length."""
