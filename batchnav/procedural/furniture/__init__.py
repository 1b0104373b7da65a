"""Parametric furniture: each module holds builders and the `Piece`s made of them."""
