"""The API: who asks for what, and what is answered."""
