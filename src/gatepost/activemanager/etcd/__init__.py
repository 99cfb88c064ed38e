"""The registry in an etcd cluster (3.4 and later), by its JSON gateway. Loaded only where etcd is configured."""
