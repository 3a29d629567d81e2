module github.com/seed581295f1/timewheel/durable

go 1.25.0

require (
	github.com/google/btree v1.1.3
	github.com/seed581295f1/timewheel v0.1.0
	github.com/sirupsen/logrus v1.10.2
)

require (
	github.com/orcaman/concurrent-map/v2 v2.0.1 // indirect
	github.com/panjf2000/ants/v2 v2.12.1 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
