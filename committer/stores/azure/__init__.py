"""What the stores on Azure's storage accounts share: access, options, requests, refusals."""
