"""Reference bundles: the reference's runs as one file, made where they belong, used elsewhere.

``recording`` makes the runs, ``bundle`` writes the file, ``opening`` reads one without trusting
it, ``importing`` puts its runs into a session, ``comparing`` holds two beside each other.
"""
