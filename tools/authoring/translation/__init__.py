"""The course in another language: what is to be translated, the catalogues, and what is made of them."""
