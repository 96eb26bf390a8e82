package main

import "github.com/apache/rocketmq-client-go/v2/primitive"

// credentials are what the client signs with; empty ones sign nothing.
func (o options) credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: o.accessKey, SecretKey: o.secretKey}
}
