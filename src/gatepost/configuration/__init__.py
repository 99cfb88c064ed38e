"""From files to frozen values: the organization and the settings of this front end."""
