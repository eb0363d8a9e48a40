#!/bin/sh
# Fetches the renewed certificate of a container's node when it is time, as rado-certificate@.timer does under systemd.
# Once a day, for example by cron, which mails what is printed: only a failure is. In /etc/cron.d/rado, one line:
#
#   17 0 * * * root MEMBER=/srv/north TABLE=/srv/table sh /opt/radofed/deploy/compose/renew.sh party
#
# The role is party, coordinator or learner. It waits up to JITTER_S seconds first, so that members do not ask at once.
# PASSPHRASE names the file with the keys' passphrase, if they have one.
set -eu
role=$1
folder=$(dirname "$0")
set -- -f "$folder/$role.yml"
if [ -n "${PASSPHRASE:-}" ]; then
    case $role in
        party) set -- "$@" -f "$folder/passphrase.yml" ;;
        *) set -- "$@" -f "$folder/passphrase-$role.yml" ;;
    esac
fi
sleep "$(shuf -n 1 -i "0-${JITTER_S:-21600}")"
if ! said=$(docker compose "$@" run --rm -T admin certificate renew --config "/etc/rado/$role.toml" 2>&1); then
    echo "$said"
    exit 1
fi
