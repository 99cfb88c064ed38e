"""Content hooks: a program outside looks at each message before it is taken, and says what is to become of it."""
