"""The built front end; made by `npm run build` in `js/`, never by hand."""
