"""What two or three lessons share."""
