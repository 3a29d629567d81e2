module github.com/seed581295f1/timewheel/timewheel/dashboard

go 1.25

require github.com/seed581295f1/timewheel v0.0.0

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/orcaman/concurrent-map/v2 v2.0.1 // indirect
	github.com/panjf2000/ants/v2 v2.12.1 // indirect
	github.com/sirupsen/logrus v1.10.2
	golang.org/x/sync v0.11.0 // indirect
	golang.org/x/sys v0.13.0 // indirect
)

replace github.com/seed581295f1/timewheel => ../../
