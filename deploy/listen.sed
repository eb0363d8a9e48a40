# After layout.sed, for programs that read metrics: a port of this host, pod or container in place of the socket, which only
# the node's own user may read. sed -i -f listen.sed party.toml
s|^socket = "/var/lib/rado/watch.sock"|listen = "127.0.0.1:9464"|
