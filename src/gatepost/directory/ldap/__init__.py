"""Users in an LDAP directory: Active Directory, OpenLDAP and others."""
