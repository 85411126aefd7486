"""Pictures: `charts` and `panels` say what is shown, `drawing` draws it."""
