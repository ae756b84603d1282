"""x"""

fold_in = None
