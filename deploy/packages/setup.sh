# What the scripts of both kinds of packages do alike. build.sh puts it in front of those that are called at an installation.

config=/etc/myriad/myriad.toml
secrets=/etc/myriad/myriad.env

# Makes the user, and gives its group the configuration.
make_user() {
    systemd-sysusers myriad.conf
    # The package manager keeps the owner of a file that was there, so this is for a file that is new.
    if [ -e "$config" ] && [ "$(stat -c %U:%G "$config")" = root:root ]; then
        chgrp myriad "$config"
    fi
}

# Makes a key of the API. Only at the first installation: whoever deletes it later has another one.
make_key() {
    [ ! -e "$secrets" ] || return 0
    key=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
    (umask 077 && printf '%s\n' > "$secrets" \
        "# The key of the HTTP API: your backend sends it as X-API-Key. After a change: systemctl restart myriad" \
        "MYRIAD_API_KEY=$key")
    chmod 0640 "$secrets"
    chgrp myriad "$secrets"
}

# Whether this version takes the configuration. A restart with one that it refuses would end a service that works.
accepts_configuration() {
    [ -e "$config" ] || return 0
    mistakes=$(/usr/bin/myriad config check "$config" 2>&1) && return 0
    echo "$mistakes" >&2
    echo "myriad: neither started nor restarted, because of these mistakes. Correct them, then: systemctl restart myriad" >&2
    return 1
}
