module github.com/seed581295f1/timewheel/durable/postgres

go 1.25.0

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/seed581295f1/timewheel v0.1.0
	github.com/seed581295f1/timewheel/durable v0.1.0
)

require (
	github.com/google/btree v1.1.3 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/orcaman/concurrent-map/v2 v2.0.1 // indirect
	github.com/panjf2000/ants/v2 v2.12.1 // indirect
	github.com/sirupsen/logrus v1.10.2 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)
