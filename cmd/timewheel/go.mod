module github.com/seed581295f1/timewheel/cmd/timewheel

go 1.25.0

require (
	github.com/seed581295f1/timewheel v0.1.0
	github.com/seed581295f1/timewheel/durable v0.1.0
	github.com/seed581295f1/timewheel/durable/pebble v0.1.0
	github.com/seed581295f1/timewheel/durable/postgres v0.1.0
	github.com/sirupsen/logrus v1.10.2
	golang.org/x/term v0.45.0
	golang.org/x/text v0.41.0
)
