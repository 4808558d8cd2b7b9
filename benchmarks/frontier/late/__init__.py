"""Begin late and look again: leave out what is doubted from two thirds of a run on, with nothing given."""
