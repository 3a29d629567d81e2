module github.com/seed581295f1/timewheel/examples

go 1.25

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/schollz/progressbar/v3 v3.18.0
	github.com/seed581295f1/timewheel v0.0.0
	github.com/seed581295f1/timewheel/timewheel/ttlcache v0.0.0
	golang.org/x/term v0.33.0
)

require (
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/mitchellh/colorstring v0.0.0-20190213212951-d06e56a500db // indirect
	github.com/orcaman/concurrent-map/v2 v2.0.1 // indirect
	github.com/panjf2000/ants/v2 v2.12.1 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/sirupsen/logrus v1.10.2 // indirect
	golang.org/x/sync v0.17.0 // indirect
	golang.org/x/sys v0.34.0 // indirect
)

replace github.com/seed581295f1/timewheel => ../

replace github.com/seed581295f1/timewheel/timewheel/ttlcache => ../timewheel/ttlcache
