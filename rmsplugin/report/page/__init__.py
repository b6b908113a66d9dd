"""Page: a report's document as one HTML file that needs no network."""
