module github.com/seed581295f1/timewheel/ttlcache

go 1.25.0

require (
	github.com/hashicorp/golang-lru/v2 v2.0.7
	github.com/seed581295f1/timewheel v0.1.0
)

require (
	github.com/orcaman/concurrent-map/v2 v2.0.1 // indirect
	github.com/panjf2000/ants/v2 v2.12.1 // indirect
	github.com/sirupsen/logrus v1.10.2 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
