"""The verbs of the console command, one module each, imported only when called for."""
