"""What comes back: frozen results that print, plot, save and tabulate alike."""
