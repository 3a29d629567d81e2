module github.com/seed581295f1/timewheel/test/browser

go 1.25

require github.com/seed581295f1/timewheel v0.0.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/seed581295f1/timewheel/timewheel/dashboard v0.0.0
	github.com/sirupsen/logrus v1.10.2
)

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/orcaman/concurrent-map/v2 v2.0.1 // indirect
	github.com/panjf2000/ants/v2 v2.12.1 // indirect
	golang.org/x/sync v0.11.0 // indirect
	golang.org/x/sys v0.13.0 // indirect
)

replace github.com/seed581295f1/timewheel => ../../

replace github.com/seed581295f1/timewheel/timewheel/dashboard => ../../timewheel/dashboard
