"""Who a user is: names, credentials, mailbox, rights."""
