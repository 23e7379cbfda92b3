// The shared library is made of the static ones; a library needs a file of its own.
