"""The screens: the cockpit, the list of sessions, and the dialogs over them."""
