"""HTTP/1.1 for calls to upstreams: requests and answers as bytes, connections, pools, proxies."""
