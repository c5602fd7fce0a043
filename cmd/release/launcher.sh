#!/bin/sh
# Starts the binary for this system.
case "$(uname -s) $(uname -m)" in
"Darwin arm64") system=darwin-arm64 ;;
"Darwin x86_64") system=darwin-amd64 ;;
"Linux aarch64" | "Linux arm64") system=linux-arm64 ;;
"Linux x86_64") system=linux-amd64 ;;
*)
	echo "deepwork: this bundle has no binary for $(uname -s) on $(uname -m)" >&2
	exit 1
	;;
esac
program=$(dirname "$0")/deepwork-$system
[ -x "$program" ] || chmod +x "$program" # some installers drop the permission
exec "$program" "$@"
