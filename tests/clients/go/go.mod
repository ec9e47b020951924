module myriad.test/clients

go 1.22

require github.com/centrifugal/gocent/v3 v3.2.0
