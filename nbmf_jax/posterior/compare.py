"""x"""

compare = None
