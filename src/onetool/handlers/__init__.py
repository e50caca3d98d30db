"""Ways to carry a call out that are more than a function: an HTTP request made of a template."""
