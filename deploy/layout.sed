# Gives a node's configuration the paths and the health check of these samples: sed -i -f layout.sed party.toml
# /etc/rado has what the member was given and made; /var/lib/rado what the node writes; /srv/rado a party's table.
s|^state_directory = "state" |state_directory = "/var/lib/rado" |
s|^paillier_key = "paillier.jwk" |paillier_key = "/var/lib/rado/paillier.jwk" |
s|^releases_directory = "releases" |releases_directory = "/var/lib/rado/releases" |
s|^data = "data.csv" |data = "/srv/rado/data.csv" |
s|^# \[watch\]|[watch]|
s|^# listen = "127.0.0.1:9464".*|socket = "/var/lib/rado/watch.sock"|
