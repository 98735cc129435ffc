"""A package, so that pytest puts the checkout on the path and not this folder.

Its folder ``datasets`` would be taken for the package of that name, which Transformers uses where it finds it.
"""
