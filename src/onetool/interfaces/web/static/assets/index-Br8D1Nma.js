<<<<<<<< HEAD:src/onetool/interfaces/web/static/assets/index-Br8D1Nma.js
const __vite__mapDeps=(i,m=__vite__mapDeps,d=(m.f||(m.f=["./start-BU1uEGdY.js","./base-BRw4HGn4.js","./link-Btbc8Ulp.js","./base-BhYcHOqM.css"])))=>i.map(i=>d[i]);
import{n as e,t}from"./link-Btbc8Ulp.js";var n=e(),{start:r}=await t(async()=>{let{start:e}=await import(`./start-BU1uEGdY.js`);return{start:e}},__vite__mapDeps([0,1,2,3]),import.meta.url);await r(n);
========
const __vite__mapDeps=(i,m=__vite__mapDeps,d=(m.f||(m.f=["./start-CBdhz9aN.js","./base-CCUrkACB.js","./link-Btbc8Ulp.js","./base-BshUsFBV.css"])))=>i.map(i=>d[i]);
import{n as e,t}from"./link-Btbc8Ulp.js";var n=e(),{start:r}=await t(async()=>{let{start:e}=await import(`./start-CBdhz9aN.js`);return{start:e}},__vite__mapDeps([0,1,2,3]),import.meta.url);await r(n);
>>>>>>>> p50a:src/onetool/interfaces/web/static/assets/index-glwLCe2U.js
